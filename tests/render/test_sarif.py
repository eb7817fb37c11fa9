"""The SARIF log against the objects of the standard (SARIF 2.1.0, sections 3.13 to 3.52).

The standard's schema allows no other members than these; what it requires, and what code scanning services require
beyond it, stands behind the slash.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

from podslice.advise.lint.model import SEVERITIES, Finding, ObjectReference
from podslice.advise.lint.registry import RULES
from podslice.advise.lint.sarif import to_sarif

_OBJECTS = {
    "sarifLog": "$schema inlineExternalProperties properties / version runs",
    "run": """addresses artifacts automationDetails baselineGuid columnKind conversion defaultEncoding
        defaultSourceLanguage externalPropertyFileReferences graphs invocations language logicalLocations
        newlineSequences originalUriBaseIds policies properties redactionTokens runAggregates specialLocations
        taxonomies threadFlowLocations translations versionControlProvenance webRequests webResponses
        / tool results""",
    "tool": "extensions properties / driver",
    "toolComponent": """associatedComponent contents dottedQuadFileVersion downloadUri fullDescription fullName
        globalMessageStrings guid informationUri isComprehensive language localizedDataSemanticVersion locations
        minimumRequiredLocalizedDataSemanticVersion notifications organization product productSuite properties
        releaseDateUtc semanticVersion shortDescription supportedTaxonomies taxa translationMetadata version
        / name rules""",
    "reportingDescriptor": """defaultConfiguration deprecatedGuids deprecatedIds deprecatedNames guid helpUri
        messageStrings name properties relationships / id shortDescription fullDescription help""",
    "reportingConfiguration": "enabled level parameters properties rank /",
    "multiformatMessageString": "markdown properties / text",
    "result": """analysisTarget attachments baselineState codeFlows correlationGuid fingerprints fixes graphTraversals
        graphs guid hostedViewerUri kind occurrenceCount partialFingerprints properties provenance rank
        relatedLocations rule stacks suppressions taxa webRequest webResponse workItemUris
        / ruleId ruleIndex level message locations""",
    "message": "arguments id markdown properties / text",
    "location": "annotations id logicalLocations message physicalLocation properties relationships /",
    "physicalLocation": "address contextRegion properties region / artifactLocation",
    "artifactLocation": "description index properties uriBaseId / uri",
    "region": """byteLength byteOffset charLength charOffset endColumn endLine message properties snippet
        sourceLanguage / startLine startColumn""",
    "logicalLocation": "decoratedName index kind name parentIndex properties / fullyQualifiedName",
}
_MEMBERS = {
    "runs": "run", "tool": "tool", "driver": "toolComponent", "rules": "reportingDescriptor",
    "defaultConfiguration": "reportingConfiguration", "shortDescription": "multiformatMessageString",
    "fullDescription": "multiformatMessageString", "help": "multiformatMessageString", "results": "result",
    "message": "message", "locations": "location", "physicalLocation": "physicalLocation",
    "artifactLocation": "artifactLocation", "region": "region", "logicalLocations": "logicalLocation",
}  # fmt: skip


def check(value: Any, kind: str) -> int:
    """Raise for an object that has a member too many or lacks one; how many objects were looked at."""
    known, required = (part.split() for part in _OBJECTS[kind].split("/"))
    assert value.keys() <= {*known, *required}, (kind, value.keys())
    assert value.keys() >= set(required), (kind, value.keys())
    seen = 1
    for name, member in value.items():
        for one in member if isinstance(member, list) else [member]:
            if isinstance(one, dict):
                seen += check(one, _MEMBERS[name])
    if "level" in value:
        assert value["level"] in ("none", "note", "warning", "error")
    return seen


def finding(**changes: Any) -> Finding:
    facts: dict[str, Any] = {
        "id": RULES[0].id,
        "name": RULES[0].name,
        "severity": "error",
        "object": ObjectReference("Pod", "default", "p"),
        "path": "spec.containers[0]",
        "message": "it hurts",
        "fix": "stop",
        "source": "./a pod.yaml",
        "line": 3,
        "column": 5,
    }
    return Finding(**{**facts, **changes})


@pytest.mark.parametrize(
    "findings",
    [
        pytest.param([], id="none"),
        pytest.param([finding(severity=severity) for severity in SEVERITIES], id="every severity"),
        pytest.param([finding(line=0, column=0)], id="place unknown"),
        pytest.param([finding(source="stdin")], id="standard input"),
        pytest.param([finding(source="/a/b#c.yaml")], id="absolute path"),
        pytest.param([finding(object=ObjectReference("KubeletConfiguration"), path="")], id="configuration"),
    ],
)
def test_the_log_has_the_members_of_the_standard(findings: list[Finding]) -> None:
    """Every object has the members that are required and none that is unknown; levels are the standard's words."""
    log = to_sarif(findings, RULES, "1.0")
    assert check(log, "sarifLog") > 4 * len(RULES)
    (run,) = log["runs"]
    assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    assert len(run["results"]) == len(findings)
    identifiers = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(set(identifiers)) == len(identifiers)
    for result in run["results"]:
        assert identifiers[result["ruleIndex"]] == result["ruleId"]


def test_places_are_uri_references() -> None:
    """Blanks and other marks in file names are escaped, lines and columns count from 1."""
    results = to_sarif([finding(), finding(source="/a/b#c.yaml")], RULES, "1.0")["runs"][0]["results"]
    places = [result["locations"][0]["physicalLocation"] for result in results]
    assert [place["artifactLocation"]["uri"] for place in places] == ["a%20pod.yaml", "file:///a/b%23c.yaml"]
    assert not any(urlsplit(place["artifactLocation"]["uri"]).fragment for place in places)
    assert places[0]["region"] == {"startLine": 3, "startColumn": 5}
