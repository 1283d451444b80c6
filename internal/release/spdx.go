package release

import (
	"fmt"
	"slices"
)

// SPDX returns the bill of materials as SPDX 2.3, in JSON.
func (b *Bill) SPDX() ([]byte, error) {
	const document, root, none = "SPDXRef-DOCUMENT", "SPDXRef-tritonstateful", "NOASSERTION"
	packages := []object{{
		"SPDXID": root, "name": b.Name, "versionInfo": b.Version, "downloadLocation": none, "filesAnalyzed": false,
		"licenseConcluded": "MIT", "licenseDeclared": "MIT", "copyrightText": none,
	}}
	relationships := []object{relation(document, "DESCRIBES", root)}
	for i := range b.Parts {
		part := &b.Parts[i]
		packages = append(packages, object{
			"SPDXID": partID(i), "name": part.Name, "versionInfo": part.Version, "downloadLocation": none, "filesAnalyzed": false,
			"licenseConcluded": part.License, "licenseDeclared": part.License, "copyrightText": none,
			"externalRefs": []object{{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": part.Purl}},
		})
		relationships = append(relationships, relation(root, "CONTAINS", partID(i)))
	}
	files := []object{}
	for number, file := range b.Files {
		id := fmt.Sprintf("SPDXRef-File-%d", number)
		files = append(files, object{
			"SPDXID": id, "fileName": "./" + file.Path, "copyrightText": none, "licenseConcluded": none,
			"checksums": []object{{"algorithm": "SHA1", "checksumValue": file.SHA1}, {"algorithm": "SHA256", "checksumValue": file.SHA256}},
		})
		relationships = append(relationships, relation(document, "DESCRIBES", id))
		for i := range b.Parts {
			if slices.Contains(b.Parts[i].Files, file.Path) {
				relationships = append(relationships, relation(id, "STATIC_LINK", partID(i)))
			}
		}
	}
	return encode(object{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": document,
		"name": fmt.Sprintf("%s-%s-%s", b.Name, b.Version, b.Variant), "documentNamespace": "urn:uuid:" + b.id(),
		"creationInfo": object{"created": b.timestamp(), "creators": []string{"Tool: tritonstateful-build-" + b.Version}},
		"packages":     packages, "files": files, "relationships": relationships,
	})
}

func partID(i int) string { return fmt.Sprintf("SPDXRef-Part-%d", i) }

func relation(from, kind, to string) object {
	return object{"spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to}
}
