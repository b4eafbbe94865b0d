"""A Weights & Biases server on this machine that keeps what it is sent: runs by id, artifacts by name and version.

It answers the operations of the SDK that a run needs, after messages that this sends; others are in `unknown`.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any

from tests.http_server import Call, Due, HttpServer, RefusedError, Status

KEY = "0" * 40
_ME = {
    "id": "u",
    "entity": "me",
    "username": "me",
    "email": "me@example.org",
    "flags": "{}",
}
_PROJECT = {
    "id": "P",
    "internalId": "P",
    "name": "elo_exp",
    "entity": {"id": "E", "name": "me"},
}
_FIXED = {
    "__typename": "Artifact", "description": None, "ttlDurationSeconds": -1, "ttlIsInherited": False,
    "tags": [], "historyStep": None, "state": "COMMITTED", "size": 1, "commitHash": "0", "fileCount": 1,
    "createdAt": "2026-01-01T00:00:00", "updatedAt": None, "aliases": [],
}  # fmt: skip
Given = dict[str, Any]


def content(call: Call) -> bytes:
    """The body of a call, unpacked."""
    is_packed = call.body[:2] == b"\x1f\x8b"
    return gzip.decompress(call.body) if is_packed else call.body


def operation(query: str) -> str:
    found = re.search(r"(?:query|mutation) (\w+)", query)
    return found[1] if found else query[:60]


@dataclass
class Run:
    id: str
    fields: Given = field(
        default_factory=dict
    )  # name, group, tags, notes ... as last sent
    config: Given = field(default_factory=dict)
    summary: Given = field(default_factory=dict)
    history: dict[int, Given] = field(default_factory=dict)  # by line
    exits: list[int] = field(default_factory=list)  # one for each piece that ended
    used: list[str] = field(default_factory=list)
    resumed: int = 0


@dataclass
class Artifact:
    id: str
    collection: str
    type: str
    digest: str
    by: str  # the run that logged it first
    version: int = -1
    aliases: list[str] = field(default_factory=list)
    manifest: Given = field(default_factory=dict)
    metadata: Given = field(default_factory=dict)


@dataclass
class ProjectServer(HttpServer):
    """`delay` seconds before every answer; `refusal`, a status, to all that is sent; faults by operation."""

    refusal: int | None = None
    delay: float = 0.0
    on_call = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.runs: dict[str, Run] = {}
        self.artifacts: dict[str, Artifact] = {}
        self.links: dict[str, list[Artifact]] = {}  # by collection
        self.unknown: set[str] = set()  # operations that it does not have
        self.files: dict[str, bytes] = {}
        self.views: list[Given] = []  # saved workspaces and reports
        # The environment of a command that has a key
        self.variables = {
            "WANDB_BASE_URL": self.url,
            "WANDB_API_KEY": KEY,
            "NO_PROXY": "127.0.0.1",
        }

    def keep(
        self, name: str, files: dict[str, bytes | None], kind: str = "leaderboard"
    ) -> None:
        """Keep an artifact's first version; None: a reference to a file elsewhere."""
        made = Artifact(f"A{len(self.artifacts)}", name, kind, name, "", version=0)
        self.artifacts[made.id] = made
        contents: Given = {}
        for file, content in files.items():
            md5 = hashlib.md5(content or b"", usedforsecurity=False)
            entry = {"digest": base64.b64encode(md5.digest()).decode(), "size": 0}
            if content is None:
                entry["ref"] = "file:///etc/hostname"
            else:
                entry |= {"size": len(content), "birthArtifactID": made.id}
                self.files[f"blob/{md5.hexdigest()}"] = content
            contents[file] = entry
        manifest = {
            "version": 1,
            "storagePolicy": "wandb-storage-policy-v1",
            "storagePolicyConfig": {"storageLayout": "V2"},
            "contents": contents,
        }
        self.files[f"manifest/{made.id}"] = json.dumps(manifest).encode()

    def error(self, fault: Status) -> Any:
        return {"errors": [{"message": fault.message}]}

    def place(self, call: Call) -> str:
        """The path, and of GraphQL the operation: /graphql/UpsertBucket."""
        body = content(call)
        if call.path != "/graphql" or not body:
            return call.path
        return f"{call.path}/{operation(json.loads(body)['query'])}"

    @property
    def received(self) -> bytes:
        """All that it was sent."""
        return b"\n".join(map(content, self.calls))

    def serve(self, call: Call, due: Due) -> bytes:
        if self.refusal is not None:
            raise RefusedError(Status(self.refusal, message="permission denied"))
        self.closing.wait(self.delay)
        body = content(call)
        with self.lock:
            if call.path.endswith("/file_stream"):
                self._stream(self.runs[call.path.split("/")[-2]], json.loads(body))
            if call.method == "GET":
                return self._file(call.path)
            if call.path.startswith("/storage/"):
                self.files[call.path.removeprefix("/storage/")] = body
            if call.path != "/graphql" or not body:  # telemetry is not JSON
                return b"{}"
            asked = json.loads(body)
            name = operation(asked["query"])
            answer = getattr(self, f"_{name}", None)
            if answer is None:
                self.unknown.add(name)
            data = answer(asked.get("variables") or {}) if answer else {}
        return json.dumps({"data": data}).encode()

    def _file(self, path: str) -> bytes:
        """What was stored, or a file of an artifact, /artifactsV2/.../MD5/NAME."""
        place = path.removeprefix("/storage/")
        if path.startswith("/artifacts"):
            place = f"blob/{path.split('/')[-2]}"
        if place not in self.files:
            raise RefusedError(Status(404, message="not found"))
        return self.files[place]

    def _stream(self, run: Run, sent: Given) -> None:
        for name, part in (sent.get("files") or {}).items():
            for n, line in enumerate(part["content"], part["offset"]):
                if name == "wandb-history.jsonl":
                    run.history[n] = json.loads(line)
                elif name == "wandb-summary.json":
                    run.summary = json.loads(line)
        if sent.get("complete"):
            run.exits.append(int(sent["exitcode"]))

    def _bucket(self, run: Run) -> Given:
        return {
            "id": run.id, "name": run.id, "displayName": run.fields.get("displayName"), "description": None,
            "summaryMetrics": json.dumps(run.summary), "config": json.dumps(run.config), "sweepName": None,
            "logLineCount": 0, "historyLineCount": max(run.history, default=-1) + 1, "eventsLineCount": 0,
            "historyTail": json.dumps([json.dumps(row) for _, row in sorted(run.history.items())][-1:]),
            "eventsTail": "[]", "tags": run.fields.get("tags") or [], "notes": run.fields.get("notes"),
            "wandbConfig": json.dumps({"t": 1}), "project": _PROJECT,
        }  # fmt: skip

    def _url(self, place: str) -> Given:
        return {
            "id": "F",
            "uploadUrl": f"{self.url}/storage/{place}",
            "uploadHeaders": [],
        }

    # GraphQL, by operation

    def _Viewer(self, _: Given) -> Given:  # noqa: N802
        return {"viewer": {**_ME, "teams": {"edges": []}}}

    def _GetDefaultEntity(self, _: Given) -> Given:  # noqa: N802
        return {"viewer": {**_ME, "teams": {"edges": []}}}

    def _ProjectInternalId(self, given: Given) -> Given:  # noqa: N802
        return {"project": _PROJECT}

    def _GetProjects(self, _: Given) -> Given:  # noqa: N802
        node = {
            **_PROJECT,
            "entityName": "me",
            "createdAt": "",
            "isBenchmark": False,
            "user": None,
        }
        page = {"endCursor": None, "hasNextPage": False}
        return {"models": {"pageInfo": page, "edges": [{"node": node}]}}

    def _UpsertView2(self, given: Given) -> Given:  # noqa: N802
        self.views.append(given)
        view = {"id": f"V{len(self.views)}", "name": given["name"]}
        return {"upsertView": {"view": view, "inserted": True}}

    def _upsertView(self, given: Given) -> Given:  # noqa: N802
        saved = self._UpsertView2(given)
        project = {**_PROJECT, "entityName": given["entityName"]}
        shown = ("displayName", "type", "description", "spec")
        saved["upsertView"]["view"] |= {name: given[name] for name in shown}
        saved["upsertView"]["view"] |= {"project": project, "updatedAt": None}
        return saved

    def _ServerFeaturesQuery(self, _: Given) -> Given:  # noqa: N802
        return {"serverInfo": {"features": []}}

    def _RunResumeStatus(self, given: Given) -> Given:  # noqa: N802
        run = self.runs.get(given["name"])
        if run:
            run.resumed += 1
        return {"model": {**_PROJECT, "bucket": self._bucket(run) if run else None}}

    def _UpsertBucket(self, given: Given) -> Given:  # noqa: N802
        run_id = given.get("name") or given["id"]
        is_new = run_id not in self.runs
        run = self.runs.setdefault(run_id, Run(run_id))
        run.fields |= {
            k: v for k, v in given.items() if v is not None and k != "config"
        }
        run.config |= json.loads(given.get("config") or "{}")
        return {"upsertBucket": {"bucket": self._bucket(run), "inserted": is_new}}

    def _CreateRunFiles(self, given: Given) -> Given:  # noqa: N802
        files = [
            {"name": n, **self._url(f"{given['run']}/{n}")} for n in given["files"]
        ]
        return {
            "createRunFiles": {
                "runID": given["run"],
                "uploadHeaders": [],
                "files": files,
            }
        }

    def _MarkRunFilesUploaded(self, _: Given) -> Given:  # noqa: N802
        return {"markRunFilesUploaded": {"success": True}}

    def _ArtifactType(self, given: Given) -> Given:  # noqa: N802
        name = given["name"].partition(":")[0]
        kinds = [a.type for a in self.artifacts.values() if a.collection == name]
        return {
            "project": {
                "artifact": {"artifactType": {"name": kinds[0]}} if kinds else None
            }
        }

    def _CreateArtifact(self, given: Given) -> Given:  # noqa: N802
        asked, n = given["input"], len(self.artifacts)
        name, kind, digest = (
            asked["artifactCollectionName"],
            asked["artifactTypeName"],
            asked["digest"],
        )
        same = [a for a in self.artifacts.values() if a.collection == name]
        latest = next(
            (a.id for a in same if "latest" in a.aliases and a.version >= 0), None
        )
        made = next((a for a in same if a.digest == digest), None)
        made = made or Artifact(f"A{n}", name, kind, digest, asked.get("runName") or "")
        self.artifacts[made.id] = made
        made.metadata |= json.loads(asked.get("metadata") or "{}")
        named = {entry["alias"] for entry in asked.get("aliases") or ()}
        for other in same:
            other.aliases = [a for a in other.aliases if a not in named]
        made.aliases = sorted({*made.aliases, *named})
        state = "COMMITTED" if made.version >= 0 else "PENDING"
        sequence = {"latestArtifact": {"id": latest} if latest else None}
        return {
            "createArtifact": {
                "artifact": {
                    "id": made.id,
                    "state": state,
                    "artifactSequence": sequence,
                }
            }
        }

    def _CreateArtifactManifest(self, given: Given) -> Given:  # noqa: N802
        found = {
            "id": given["artifactID"],
            "file": self._url(f"manifest/{given['artifactID']}"),
        }
        return {"createArtifactManifest": {"artifactManifest": found}}

    def _UpdateArtifactManifest(self, given: Given) -> Given:  # noqa: N802
        found = self._CreateArtifactManifest(
            {"artifactID": given["artifactManifestID"]}
        )
        return {"updateArtifactManifest": found["createArtifactManifest"]}

    def _CreateArtifactFiles(self, given: Given) -> Given:  # noqa: N802
        edges = []
        for one in given["input"]["artifactFiles"]:
            place = self._url(f"blob/{base64.b64decode(one['md5']).hex()}") | {
                "artifact": {"id": one["artifactID"]}
            }
            edges.append(
                {
                    "node": {
                        **place,
                        "storagePath": one["md5"],
                        "uploadMultipartUrls": None,
                    }
                }
            )
        return {"createArtifactFiles": {"files": {"edges": edges}}}

    def _CommitArtifact(self, given: Given) -> Given:  # noqa: N802
        made = self.artifacts[given["artifactID"]]
        if made.version < 0:
            same = [
                a.version
                for a in self.artifacts.values()
                if a.collection == made.collection
            ]
            made.version = max(same) + 1
            made.manifest = json.loads(self.files.get(f"manifest/{made.id}", b"{}"))
        return {"commitArtifact": {"artifact": {"id": made.id, "digest": made.digest}}}

    def _ArtifactByID(self, given: Given) -> Given:  # noqa: N802
        return {"artifact": self._artifact(self.artifacts[given["id"]])}

    def _artifact(self, made: Artifact) -> Given:
        name = {"id": made.collection, "name": made.collection, "project": _PROJECT}
        own = {
            "id": made.id,
            "versionIndex": made.version,
            "metadata": json.dumps(made.metadata),
        }
        own |= {
            "artifactSequence": {"__typename": "ArtifactSequence", **name},
            "digest": made.digest,
        }
        return {**_FIXED, **own, "artifactType": {"name": made.type}}

    def _ArtifactMembershipByName(self, given: Given) -> Given:  # noqa: N802
        collection, _, version = given["name"].partition(":")
        if given["project"].startswith("wandb-registry-"):
            named = self.links.get(collection, [])
        elif (given["entity"], given["project"]) == ("me", "elo_exp"):
            named = [a for a in self.artifacts.values() if a.collection == collection]
        else:
            return {"project": None}
        made = next(
            (a for a in named if version in (f"v{a.version}", *a.aliases)), None
        )
        return {
            "project": {
                "artifactCollectionMembership": self._membership(made, collection)
                if made
                else None
            }
        }

    def _membership(self, made: Artifact, collection: str) -> Given:
        return {
            "__typename": "ArtifactCollectionMembership",
            "id": f"M{made.id}",
            "versionIndex": made.version,
            "createdAt": _FIXED["createdAt"],
            "aliases": [],
            "artifactCollection": {
                "__typename": "ArtifactSequence",
                "name": collection,
                "project": _PROJECT,
            },
            "artifact": self._artifact(made),
        }

    def _FetchOrgInfoFromEntity(self, _: Given) -> Given:  # noqa: N802
        organization = {"name": "ours", "orgEntity": {"name": "ours_entity"}}
        return {"entity": {"organization": organization, "user": None}}

    def _FetchArtifactManifest(self, given: Given) -> Given:  # noqa: N802
        file = {"directUrl": f"{self.url}/storage/manifest/{given['id']}"}
        return {"artifact": {"currentManifest": {"file": file}}}

    def _LinkArtifact(self, given: Given) -> Given:  # noqa: N802
        asked = given["input"]
        made = self.artifacts[asked["artifactID"]]
        linked = self.links.setdefault(asked["artifactPortfolioName"], [])
        if made not in linked:
            linked.append(made)
        return {"result": {"versionIndex": made.version}}

    def _UseArtifact(self, given: Given) -> Given:  # noqa: N802
        asked = given.get("input") or given
        self.runs[asked["runName"]].used.append(asked["artifactID"])
        return {"useArtifact": {"artifact": {"id": asked["artifactID"]}}}
