"""`python -m relunmd`: the command line."""

from relunmd.cli import run

if __name__ == "__main__":
    run()
