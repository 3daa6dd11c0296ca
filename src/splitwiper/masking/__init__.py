"""SplitWiper+: what hides labels from the server. Clients alone import this.

Clients agree on all labels (`consensus`, `talk`), each computes the same secret codebook (`codebook`), and sends codes
in place of labels (`modes`, one file each). `plan` lists a shard's rows, and adds cover rows that hide counts.
`sealing` is the group's cryptography.
"""
