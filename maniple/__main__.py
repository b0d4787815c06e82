"""`python -m maniple`."""

from maniple.cli.main import main

main()
