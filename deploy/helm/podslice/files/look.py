"""`helm test`: whether every agent and every replica of the service is ready, and the service shows its certificate.

Arguments: NAMESPACE/daemonsets/NAME or NAMESPACE/statefulsets/NAME of what must be ready, and HOST:PORT of the service.
Exit codes: 0 all well, 1 not.
"""

import json
import os
import ssl
import sys
import time
import urllib.request

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
AUTHORITY = "/etc/podslice-cluster/ca.crt"
PATIENCE = 60
LEFT = "desiredNumberScheduled", "replicas"
READY = "numberReady", "readyReplicas"


def count(status, names):
    """Return the number that a DaemonSet or a StatefulSet has under one of the names."""
    return next((status[name] for name in names if name in status), 0)


def look_at(workload):
    """Return what is wrong with a workload, empty for nothing."""
    namespace, kind, name = workload.split("/")
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    with open(f"{ACCOUNT}/token") as file:
        headers = {"Authorization": f"Bearer {file.read()}"}
    url = f"https://{f'[{host}]' if ':' in host else host}:{port}/apis/apps/v1/namespaces/{namespace}/{kind}/{name}"
    context = ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt")
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), context=context, timeout=10) as answer:
        status = json.load(answer)["status"]
    wanted, ready = count(status, LEFT), count(status, READY)
    if not wanted:
        return f"{workload}: no node or replica is wanted; look at nodeSelector and tolerations"
    return "" if ready >= wanted else f"{workload}: {ready} of {wanted} are ready"


def look_at_service(address):
    """Return what is wrong with the service, empty for nothing. Raises `OSError` where it is not ready."""
    context = ssl.create_default_context(cafile=AUTHORITY)
    with urllib.request.urlopen(f"https://{address}/readyz", context=context, timeout=10) as answer:
        answer.read()
    return ""


def main(names):
    """Look until all is ready, a minute at most."""
    until = time.monotonic() + PATIENCE
    while True:
        problems = []
        for name in names:
            try:
                problem = look_at_service(name) if ":" in name else look_at(name)
            except OSError as error:
                problem = f"{name}: {error}"
            if problem:
                problems.append(problem)
        if not problems or time.monotonic() > until:
            break
        time.sleep(2)
    print("\n".join(problems or ["all is ready"]))
    sys.exit(bool(problems))


if __name__ == "__main__":
    main(sys.argv[1:])
