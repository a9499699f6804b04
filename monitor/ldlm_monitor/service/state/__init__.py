"""What survives a restart and no log contains."""
