package main

const apply = `
	u, err := selfupdate.New(selfupdate.Config{Trust: selfupdate.UnsignedChecksum("measured")})
	if err != nil {
		panic(err)
	}
	u.Apply(context.Background(), rel)
	u.Rollback(context.Background(), selfupdate.RollbackOptions{})
`

// uses are the rows of the table, in the order of the imports.
var uses = []use{
	{
		name:    "checksum",
		imports: []string{module + "checksum"},
		body:    `checksum.Parse(nil)`,
	},
	{
		name:    "selfupdate",
		imports: []string{"context", module + "selfupdate"},
		body:    `var rel selfupdate.Release` + apply,
	},
}
