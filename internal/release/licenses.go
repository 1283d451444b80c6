package release

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// known are licenses and sentences that only they have, with runs of blanks as one.
var known = []struct{ id, sentence string }{
	{"FTL OR GPL-2.0-or-later", "your choice of exactly one of the following two licenses: * The FreeType License"},
	{"Apache-2.0", "Apache License Version 2.0, January 2004"},
	{"Apache-2.0", "Licensed under the Apache License, Version 2.0"},
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy of this software"},
	{"BSD-3-Clause", "endorse or promote products derived from this software without specific prior written permission"},
	{"BSD-2-Clause", "Redistribution and use in source and binary forms, with or without modification, are permitted"},
	{"OFL-1.1", "SIL OPEN FONT LICENSE Version 1.1"},
	{"CC-BY-4.0", "Creative Commons Attribution 4.0 International Public License"},
}

// expression returns the SPDX expression for what the license files in the folder of a module say: all of them hold.
func expression(texts []Text) (string, error) {
	var found []string
	for _, text := range texts {
		name := strings.ToLower(text.Name)
		if filepath.Dir(name) != "." || strings.HasPrefix(name, "notice") || strings.HasPrefix(name, "patents") {
			continue
		}
		words := strings.Join(strings.Fields(text.Content), " ")
		before := len(found)
		for _, license := range known {
			isThreeToo := license.id == "BSD-2-Clause" && slices.Contains(found[before:], "BSD-3-Clause")
			if strings.Contains(words, license.sentence) && !isThreeToo && !slices.Contains(found, license.id) {
				found = append(found, license.id)
			}
		}
	}
	if len(found) == 0 {
		return "", errors.New("it has no license that we know: look at its license, and add a sentence of it to internal/release/licenses.go")
	}
	slices.Sort(found)
	for i, id := range found {
		if len(found) > 1 && strings.Contains(id, " OR ") {
			found[i] = fmt.Sprintf("(%s)", id)
		}
	}
	return strings.Join(found, " AND "), nil
}
