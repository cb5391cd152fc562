"""Studies: grids of runs as files, trained on this machine, on Ray or by SLURM."""
