"""The rules of the protocol that raw messages can try on a server: the table, its judges, and the run over it.

``table.py`` has a row for each thing that is tried; it is the file to add to. ``rows.py`` says what a row is, and
``judges.py`` what can be demanded of the answers. ``trial.py`` tries the rows, and carries their messages.
"""
