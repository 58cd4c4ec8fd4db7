# SPDX-License-Identifier: Apache-2.0
"""What a command has made and cannot tell its caller of: it is given back, because nobody would know what to delete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gsaasclient import ApiError, Client, ClientError
from gsaasclient.api import API_VERSION
from gsaasclient.cli.output import print_error
from gsaasclient.cli.standard_files import OutputError


@contextmanager
def given_back_unless_told(
    client: Client, path: str, noun: str, by_hand: str, version: str = API_VERSION
) -> Iterator[None]:
    """Within the block, a command tells its caller of what it has made; if that fails for any reason, delete it.

    *path* is where the API has it, *noun* what it is called, and *by_hand* the command that ends it. Raises what the
    block raises, and `OutputError` if the output could not be written.
    """
    try:
        yield
    except BaseException as error:
        problem = _give_back(client, path, version)
        outcome = f"{noun} is given back"
        if problem is not None:
            outcome = f"{noun} could not be given back ({problem}); to end it: {by_hand}"
        if isinstance(error, OutputError):
            raise OutputError(f"{error}; {outcome}") from error
        if isinstance(error, BrokenPipeError):
            raise OutputError(f"the reader of the output has ended; {outcome}") from error
        if problem is not None:
            print_error(outcome)
        raise


def _give_back(client: Client, path: str, version: str) -> ClientError | None:
    """Delete it, and return what was wrong if it may still be there."""
    try:
        client.request("DELETE", path, version=version)
    except ClientError as error:
        if not (isinstance(error, ApiError) and error.status == 404):
            return error
    return None
