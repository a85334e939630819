"""The exception for errors that the user can fix."""


class JobError(Exception):
    """Bad input; the text is one sentence for the user. The job ends with exit code 2."""


def first_line(error: BaseException, limit: int = 300) -> str:
    """The first non-empty line of an error's text without a trailing full stop, at most `limit` characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:limit].rstrip(".")
