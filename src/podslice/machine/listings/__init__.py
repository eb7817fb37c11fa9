"""Machines from what programs print: lscpu, numactl, /proc/cpuinfo, lstopo, alone and together."""
