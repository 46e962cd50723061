"""What Warmgate, or the simulated engine behind it, does not do yet.

Checks that need one of these are skipped, with the reason given here. `with_absent.py` insists that
each is refused, and fails as soon as one is served: then its line has to go.
"""

ABSENT = {
    "responses": "the simulated engine has no /v1/responses",
}
