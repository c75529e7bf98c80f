"""Processes for tests, forked from a server that has imported everything: starting one takes milliseconds."""

import multiprocessing


def forking(*modules):
    """A multiprocessing context whose processes know `modules` already, such as the test's own.

    The server is one for the whole run: who starts it decides what it has imported, so all ask for the most.
    """
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(
        ["anabranch.lake", "anabranch.storage.objects", "tests.support.faults", *modules]
    )
    return server
