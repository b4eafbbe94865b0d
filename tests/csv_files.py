"""Tables as other programs save them: CSV in several dialects, and spreadsheets written part by part."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape
from zipfile import ZipFile

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
_SHEET_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"

Cell = str | float | None


def write_xlsx(path: Path, sheets: Mapping[str, Sequence[Sequence[Cell]]]) -> Path:
    """Write a spreadsheet of Excel with these cells, by the name of a sheet."""
    names = list(sheets)
    numbers = range(1, len(names) + 1)
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{_TYPES}"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_SHEET_TYPE}.sheet.main+xml"/>'
        + "".join(
            f'<Override PartName="/xl/worksheets/sheet{n}.xml" ContentType="{_SHEET_TYPE}.worksheet+xml"/>'
            for n in numbers
        )
        + "</Types>",
        "_rels/.rels": f'<Relationships xmlns="{_RELATIONS}"><Relationship Id="r1" '
        f'Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>'
        + "".join(
            f'<sheet name="{escape(name)}" sheetId="{n}" r:id="s{n}"/>'
            for n, name in zip(numbers, names, strict=True)
        )
        + "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_RELATIONS}">'
        + "".join(
            f'<Relationship Id="s{n}" Type="{_OFFICE}/worksheet" Target="worksheets/sheet{n}.xml"/>'
            for n in numbers
        )
        + "</Relationships>",
    }
    for n, name in zip(numbers, names, strict=True):
        rows = "".join(
            f"<row>{''.join(map(_format_cell, row))}</row>" for row in sheets[name]
        )
        parts[f"xl/worksheets/sheet{n}.xml"] = (
            f'<worksheet xmlns="{_MAIN}"><sheetData>{rows}</sheetData></worksheet>'
        )
    with ZipFile(path, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{text}')
    return path


def _format_cell(cell: Cell) -> str:
    if cell is None:
        return "<c/>"
    if isinstance(cell, str):
        return (
            f'<c t="inlineStr"><is><t xml:space="preserve">{escape(cell)}</t></is></c>'
        )
    return f"<c><v>{cell}</v></c>"
