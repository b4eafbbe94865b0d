"""The result of a gate for programs of continuous integration: JUnit XML, and annotations of GitHub."""

import re
from xml.etree import ElementTree

from elo_exp.report.gate_page import GateResult
from elo_exp.report.sentences import gate_sentences as words

# What an XML document may not hold
_NO_XML_CHARACTERS = re.compile(
    r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
_ANNOTATION_BY_STATE = {"fail": "error", "cannot tell": "warning"}
_ELEMENT_BY_STATE = {"fail": "failure", "cannot tell": "error"}


def format_junit(gate: GateResult) -> str:
    """Return JUnit XML with a test case for each rubric: a loss is a failure, an inconclusive result an error."""
    states = [result.state for result in gate.results.values()]
    suite = ElementTree.Element(
        "testsuite",
        name="elo_exp gate",
        tests=str(len(states)),
        failures=str(states.count("fail")),
        errors=str(states.count("cannot tell")),
        skipped="0",
    )
    for rubric, result in gate.results.items():
        case = ElementTree.SubElement(
            suite, "testcase", classname="elo_exp.gate", name=_clean(rubric)
        )
        if element := _ELEMENT_BY_STATE.get(result.state):
            message = _clean(f"{rubric}: {words.STATE_ROWS[result.state].chip.lower()}")
            problem = ElementTree.SubElement(case, element, message=message)
            problem.text = _clean(gate.sentence)
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def format_annotation(gate: GateResult) -> str:
    """Return the result as an annotation that GitHub Actions shows beside the changes."""
    level = _ANNOTATION_BY_STATE.get(gate.conclusion.state, "notice")
    title = _escape_property(gate.title)
    return f"::{level} title={title}::{_escape_message(gate.sentence)}"


def _escape_message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_message(text).replace(":", "%3A").replace(",", "%2C")


def _clean(text: str) -> str:
    return _NO_XML_CHARACTERS.sub("", text)
