"""The steps from an empty database to today's tables. Forward only; each is a file in `versions`."""
