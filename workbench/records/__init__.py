"""What is kept: records of runs, databases of versions and of tuning, and where and with what a run was made."""
