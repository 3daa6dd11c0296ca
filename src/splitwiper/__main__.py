"""``python -m splitwiper``: the command line where its script is not on the path."""

from splitwiper.cli import main

if __name__ == "__main__":
    main()
