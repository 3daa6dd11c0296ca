"""Dishonest servers as processes: what they lie about (`lies_*`), how they run (`process`), who notices (`kinds`)."""
