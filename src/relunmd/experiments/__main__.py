"""`python -m relunmd.experiments`."""

from relunmd.experiments import main

if __name__ == "__main__":
    main()
