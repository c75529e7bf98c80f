"""Exports lineage as OpenLineage events: one event for each commit that a job made.

    naming     names of tables, topics and files
    windows    commits reported together, so that no job sends more than one event an interval
    facts      what is read of the tables for an event: schemas, rows and bytes
    facets     the parts of events
    events     an event, by the classes of the official client
    cursor     how far an exporter has come, durably
    transport  a file or a server, by the official client
    export     the loop over all of them

Events are derived from commits and never from running jobs: nothing is sent while a commit is made, so that no backend can fail
or delay one, and what was not sent yet is sent later, or again. ``facets``, ``events``, ``transport`` and
``export`` import the client, so they are imported when they are needed.
"""
