"""`python -m fusee` is the `fusee` command."""

from fusee.cli.main import main

if __name__ == "__main__":
    main()
