"""Test that the agent understands the notices of the cloud's metadata service."""

from __future__ import annotations

from tests.backends.conformance import eventually
from tests.backends.rehearsal.place import Cloud

from crucible.agent.host.interruption import MetadataUrl, fetch_notice

TELLS_ITS_ADDRESS = "echo $CLOUD_METADATA_URL > url.part; mv url.part url; exec sleep 600"


def test_the_agent_reads_the_notice(cloud: Cloud) -> None:
    id = cloud.running(TELLS_ITS_ADDRESS, market="spot")["id"]
    path = cloud.folder(id) / "url"
    eventually(path.exists)
    address = MetadataUrl.parse(path.read_text().strip() + "/interruption")
    assert fetch_notice(address, 10.0) is None
    cloud.call("POST", f"/admin/instances/{id}/reclaim", {"notice": 120})
    left = fetch_notice(address, 10.0)
    assert left is not None
    assert 90 < left <= 120
