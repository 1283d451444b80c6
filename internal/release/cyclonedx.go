package release

import "slices"

// CycloneDX returns the bill of materials as CycloneDX 1.6, in JSON.
func (b *Bill) CycloneDX() ([]byte, error) {
	const root = "tritonstateful"
	var components, dependencies []object
	inRoot := []string{}
	for _, file := range b.Files {
		ref := "file:" + file.Path
		inRoot = append(inRoot, ref)
		components = append(components, object{
			"type": "file", "bom-ref": ref, "name": file.Path,
			"hashes": []object{{"alg": "SHA-1", "content": file.SHA1}, {"alg": "SHA-256", "content": file.SHA256}},
		})
		linked := []string{}
		for i := range b.Parts {
			if slices.Contains(b.Parts[i].Files, file.Path) {
				linked = append(linked, b.Parts[i].Purl)
			}
		}
		dependencies = append(dependencies, object{"ref": ref, "dependsOn": linked})
	}
	for i := range b.Parts {
		part := &b.Parts[i]
		components = append(components, object{
			"type": "library", "bom-ref": part.Purl, "name": part.Name, "version": part.Version, "purl": part.Purl,
			"licenses": []object{{"expression": part.License}},
		})
	}
	dependencies = append(dependencies, object{"ref": root, "dependsOn": inRoot})
	return encode(object{
		"$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.6",
		"serialNumber": "urn:uuid:" + b.id(), "version": 1,
		"metadata": object{
			"timestamp": b.timestamp(),
			"component": object{
				"type": "application", "bom-ref": root, "name": b.Name, "version": b.Version,
				"description": "Stateful backend for Triton Inference Server, " + b.Variant,
				"licenses":    []object{{"expression": "MIT"}},
			},
		},
		"components": components, "dependencies": dependencies,
	})
}
