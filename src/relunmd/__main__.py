"""`python -m relunmd`: the command line."""

from relunmd.cli import main

if __name__ == "__main__":
    main(prog_name="relunmd")
