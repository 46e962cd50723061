"""Ollama Herd's router with its nodes' reports, without mDNS and telemetry.

`herd.py PORT DATA_DIR NODE_PORT...`: the router listens on loopback; a thread stands in for one node agent
an upstream and reports, as they do, every five seconds.
"""

import json
import os
import sys
import threading
import time
import urllib.request

port, data, nodes = int(sys.argv[1]), sys.argv[2], [int(node) for node in sys.argv[3:]]
# Its settings and state files are looked for in the home directory.
os.environ.update(HOME=data, FLEET_DATA_DIR=data, FLEET_TELEMETRY="false", FLEET_NODE_TELEMETRY="false")

import uvicorn
from fleet_manager.models.config import ServerSettings
from fleet_manager.server import app as server

MODELS = ["perf-whole:latest", "perf-stream:latest", "perf-idle:latest"]
INTERVAL_S = 5


class Silent:
    """Stands in for the mDNS advertiser."""

    def __init__(self, *_):
        pass

    async def start(self):
        pass

    async def stop(self):
        pass


def report(node):
    return {
        "node_id": f"node-{node}",
        "cpu": {"cores_physical": 8, "utilization_pct": 5.0},
        "memory": {"total_gb": 64.0, "used_gb": 8.0, "available_gb": 56.0},
        "ollama": {
            "models_loaded": [{"name": name, "size_gb": 4.0, "context_length": 32768} for name in MODELS],
            "models_available": MODELS,
            "num_parallel": 16,
        },
        "ollama_host": f"http://127.0.0.1:{node}",
        "lan_ip": "127.0.0.1",
    }


def beat():
    while True:
        for node in nodes:
            body = json.dumps(report(node)).encode()
            call = urllib.request.Request(
                f"http://127.0.0.1:{port}/heartbeat", body, {"Content-Type": "application/json"}
            )
            try:
                urllib.request.urlopen(call, timeout=5).read()
            except OSError:
                time.sleep(0.2)
                break
        else:
            time.sleep(INTERVAL_S)


server.FleetServiceAdvertiser = Silent
threading.Thread(target=beat, daemon=True).start()
uvicorn.run(
    server.create_app(ServerSettings(host="127.0.0.1", port=port)), host="127.0.0.1", port=port, log_level="error"
)
