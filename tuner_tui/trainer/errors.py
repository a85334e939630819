"""The one exception for what the person who started the job can put right."""


class JobError(Exception):
    """Bad input of a known sort; its text is one sentence for the person. The job ends with exit code 2."""


def first_line(error: BaseException, limit: int = 300) -> str:
    """The first line that says something of an error's text, without its full stop, at most `limit` characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:limit].rstrip(".")
