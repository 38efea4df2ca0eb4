"""Evidence to take away: bundles that verify without us, signatures and anchors of a journal's head.

`standalone` is what checks; it is one file of the standard library, and its copy lies in every bundle.
"""
