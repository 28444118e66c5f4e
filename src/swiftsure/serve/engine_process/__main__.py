import sys

from swiftsure.serve.engine_process.loop import main

sys.exit(main(sys.argv[1:]))
