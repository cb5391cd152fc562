"""What each benchmark times, one file each."""
