"""`podslice topology`: show a machine, or turn its description into another form."""
