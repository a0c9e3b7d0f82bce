package schema

// Deletions returns what the Down section of a migration deletes: "table", "table.column",
// "table where …" and "? statement".
func Deletions(file string) (all []string) {
	for _, d := range deletions(file) {
		switch {
		case d.Unknown != "":
			all = append(all, "? "+d.Unknown)
		case d.Column != "":
			all = append(all, d.Table+"."+d.Column)
		case d.where != "":
			all = append(all, d.Table+" where "+d.where)
		default:
			all = append(all, d.Table)
		}
	}
	return all
}

// Unknown returns the statements of a Down section of which nobody can tell what they delete.
func Unknown(file string) (all []string) {
	for _, d := range deletions(file) {
		if d.Unknown != "" {
			all = append(all, d.Unknown)
		}
	}
	return all
}
