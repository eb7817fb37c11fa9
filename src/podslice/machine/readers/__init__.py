"""Machines from text: our own form, hwloc, cAdvisor, one-line synthetic machines."""
