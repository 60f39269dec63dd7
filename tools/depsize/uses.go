package main

// update has an Updater do what most importers have it do.
const update = `
func update(rel selfupdate.Release) {
	u, err := selfupdate.New(selfupdate.Config{Trust: selfupdate.UnsignedChecksum("measured")})
	if err != nil {
		panic(err)
	}
	u.Apply(context.Background(), rel)
	u.Rollback(context.Background(), selfupdate.RollbackOptions{})
}
`

// uses are the rows of the table, in the order of the imports.
var uses = []use{
	{
		name:    "`checksum`",
		imports: []string{module + "checksum"},
		body:    `checksum.Parse(nil)`,
	},
	{
		name:    "`selfupdate`",
		imports: []string{"context", module + "selfupdate"},
		body:    `update(selfupdate.Release{})`,
		decl:    update,
	},
	{
		name:    "`source/http` with the core",
		imports: []string{"context", module + "selfupdate", module + "source/http"},
		body:    `update(httpsource.Release("v1.0.0", "https://example.org/program"))`,
		decl:    update,
	},
	{
		name:    "`source/github` with the core",
		imports: []string{"context", module + "selfupdate", module + "source/github"},
		body: `rel, err := githubsource.New("metal-stack", "metalctl").Release(context.Background(), "")
	if err != nil {
		panic(err)
	}
	update(rel)`,
		decl: update,
	},
	{
		name:    "`signature` (minisign) with the core",
		imports: []string{"context", module + "selfupdate", module + "signature"},
		body: `v, err := signature.Minisign("")
	if err != nil {
		panic(err)
	}
	println(v)
	update(selfupdate.Release{})`,
		decl: update,
	},
	{
		name:    "`signature` (ECDSA) with the core",
		imports: []string{"context", module + "selfupdate", module + "signature"},
		body: `v, err := signature.ECDSA(nil)
	if err != nil {
		panic(err)
	}
	println(v)
	update(selfupdate.Release{})`,
		decl: update,
	},
	{
		name:    "`archive` with the core",
		imports: []string{"context", module + "selfupdate", module + "archive"},
		body: `var u selfupdate.Unpacker = archive.Unpacker{}
	u.Unpack(context.Background(), nil, 0, "")
	update(selfupdate.Release{})`,
		decl: update,
	},
}
