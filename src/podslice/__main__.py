"""`python -m podslice` is the command line."""

from podslice.cli.main import main

if __name__ == "__main__":
    main()
