"""Runs a script as two ranks, which are forked: `forked_ranks.py SCRIPT [ARGUMENT...]`."""

import os
import runpy
import socket
import sys

with socket.create_server(("127.0.0.1", 0)) as server:
    port = str(server.getsockname()[1])
child = os.fork()
rank = "0" if child else "1"
# As torchrun sets them.
os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
