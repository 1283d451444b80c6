"""Checks bills of materials by the schemas and rules of CycloneDX and SPDX: check_sbom.py FOLDER of an unpacked release."""

import sys
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document


def main() -> int:
    folder = Path(sys.argv[1])
    faults = []
    if fault := JsonStrictValidator(SchemaVersion.V1_6).validate_str((folder / "sbom.cdx.json").read_text()):
        faults.append(f"sbom.cdx.json: {fault}")
    document = parse_file(str(folder / "sbom.spdx.json"))
    faults += [f"sbom.spdx.json: {message.validation_message}" for message in validate_full_spdx_document(document)]
    print("\n".join(faults) or f"{folder.name}: both bills of materials are valid, with {len(document.packages)} packages")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
