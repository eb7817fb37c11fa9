"""`python -m podslice` is the command line."""

from podslice.entry import main

if __name__ == "__main__":
    main()
