"""SplitWiper+: hides labels from the server. Only clients import this package.

Clients negotiate the set of all labels (`consensus`, `negotiation`), each computes the same secret codebook
(`codebook`) and sends codes in place of labels (`modes`, one file each). `plan` lists a shard's rows and adds cover
rows that hide counts.
`sealing` is the group's cryptography.
"""
