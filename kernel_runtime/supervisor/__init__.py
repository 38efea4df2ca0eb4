"""The resident process that owns one session.

`session.Supervisor` is the imperative shell around `core.lifecycle`: it turns frames, exits and
time into events, and carries out the commands. One thread owns every socket and the journal; two
helper threads only sync the journal's file and write the notebook.
"""
