"""Handing lineage on to others, in the words of OpenLineage: one event for each commit that a job made.

    naming     what tables, topics and files are called
    windows    commits that are told together, so that no job says more than one thing an interval
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
