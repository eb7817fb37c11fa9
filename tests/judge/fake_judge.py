"""A judge for tests: answers as podslice does, and otherwise where a case's name says so.

`lie`: a wrong `admit`. `chance`: another answer each time. `slow`: a timeout.
"""

from __future__ import annotations

import json
import random
import sys

from podslice.replay.run import run_case
from podslice.values.quirks import KUBELET_1_36


def answer(case: dict[str, object]) -> dict[str, object]:
    """The result of one case."""
    result = run_case(case, KUBELET_1_36)
    name = str(case["name"])
    for operation in result.get("ops", ()):
        if "defect" in operation:
            operation["panic"] = operation.pop("defect")
    if "slow" in name:
        return {"name": name, "timeout": True}
    if "chance" in name:
        result["admit"] = random.random()
    if "lie" in name and case.get("providers"):
        result["admit"] = "never"
    return result


def main() -> None:
    """Cases in, results out."""
    with open(sys.argv[-1], encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)["case"]
            print(json.dumps({"case": case, "result": answer(case)}))


main()
