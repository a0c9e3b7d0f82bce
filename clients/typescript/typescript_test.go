//go:build web

package typescript_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"triprize/api"
	"triprize/internal/platform/openapi"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// modules are what make npm installs.
const modules = "../../tools/npm/node_modules"

func TestMain(m *testing.M) { fleet.Main(m) }

// run runs a program in a folder; it has to succeed.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	servers.NoError(t, err)
	return path
}

// built compiles the client with its tests, which checks their types, and returns the folder.
func built(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(modules, "typescript")); err != nil {
		t.Fatal("typescript is not installed: run make npm")
	}
	dir := t.TempDir()
	run(t, ".", nil, filepath.Join(modules, ".bin/tsc"), "--project", "tsconfig.test.json", "--outDir", dir)
	servers.NoError(t, os.Symlink(absolute(t, modules), filepath.Join(dir, "node_modules")))
	servers.NoError(t, os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type": "module"}`), 0o600))
	return dir
}

// tested runs files of tests and wants all of them to have run.
func tested(t *testing.T, env []string, pattern string) {
	t.Helper()
	dir := built(t)
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("there is no %s: %v", pattern, err)
	}
	out := run(t, dir, append(fleet.NodeEnv(t), env...), "node", append([]string{"--test", "--test-reporter=tap"}, files...)...)
	for _, want := range []string{"# fail 0\n", "# cancelled 0\n", "# skipped 0\n", "# todo 0\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "# pass 0\n") {
		t.Errorf("no test has run:\n%s", out)
	}
}

func TestTheTypeScriptClientKeepsItsPromises(t *testing.T) {
	t.Parallel()
	tested(t, nil, "test/*.test.js")
}

func TestTheTypeScriptClientSellsACampaign(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{})
	tested(t, []string{"API=" + s.URLs[0], "APP=" + s.App, "OPERATOR=" + s.Operator}, "test/fleet.js")
}

func TestTheTypesOfTheContractAreCurrent(t *testing.T) {
	t.Parallel()
	now := filepath.Join(t.TempDir(), "api.gen.ts")
	run(t, ".", nil, "./generate.sh", now)
	want, err := os.ReadFile(now)
	servers.NoError(t, err)
	got, err := os.ReadFile("src/api.gen.ts")
	servers.NoError(t, err)
	if !bytes.Equal(got, want) {
		t.Error("src/api.gen.ts is not what is generated from openapi.yaml: run make generate")
	}
}

// Others generate from the document that the server sends, without settings.
func TestOthersCanGenerateTypes(t *testing.T) {
	t.Parallel()
	served, err := openapi.Public(api.OpenAPI)
	servers.NoError(t, err)
	dir := t.TempDir()
	document, types := filepath.Join(dir, "openapi.json"), filepath.Join(dir, "api.ts")
	servers.NoError(t, os.WriteFile(document, served, 0o600))
	run(t, ".", nil, filepath.Join(modules, ".bin/openapi-typescript"), document, "--output", types)
	run(t, ".", nil, filepath.Join(modules, ".bin/tsc"), "--noEmit", "--strict", types)
}

func TestTheLayerByHandHasNoAny(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("src/*.ts")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if file == "src/api.gen.ts" { // its comments have words
			continue
		}
		text, err := os.ReadFile(file)
		servers.NoError(t, err)
		for _, word := range []string{": any", "<any", "as any", "any[]", "@ts-ignore", "@ts-expect-error"} {
			if bytes.Contains(text, []byte(word)) {
				t.Errorf("%s has %q", file, word)
			}
		}
	}
}

// user is a program of somebody who has installed the package: strict, and with the types of
// the package alone.
const user = `
import { purchased, Triprize, type Job } from "@triprize/client";
import { verifyWebhook } from "@triprize/client/webhooks";

const client = new Triprize({ baseUrl: "https://triprize.example.com", credential: "tp_key" });
export async function sell(campaign: string): Promise<number> {
  const job: Job = await client.buy(campaign, { user_id: "alice", selection: { quantity: 1 }, payment: { method: "external" } });
  for await (const one of client.list("/v1/campaigns", { query: { state: "active" } })) {
    console.log(one.name);
  }
  const some = await client.wait(job.id);
  if (some.kind === "hold-create" && some.state === "succeeded") {
    console.log(some.result.expires_at);
    // @ts-expect-error: a hold is not a cancellation
    console.log(some.result.board_version);
  }
  const bought = await client.buyHold(await client.hold(campaign, { user_id: "alice", quantity: 1 }), { method: "card", payment_method: "pm_card_visa" });
  console.log(bought.state === "succeeded" ? bought.result.board_version : bought.problem?.code);
  for await (const one of client.list("/v1/jobs", { query: { kind: "cancellation" } })) {
    if (one.kind === "cancellation") console.log(one.result?.amount);
  }
  // @ts-expect-error: there is no such path
  await client.get("/v1/nothing");
  // @ts-expect-error: the campaign is missing
  await client.get("/v1/campaigns/{campaign}");
  // @ts-expect-error: there is no such method of payment
  await client.buy(campaign, { user_id: "alice", selection: { quantity: 1 }, payment: { method: "barter" } });
  return purchased(job).amount;
}
console.log(typeof sell, typeof verifyWebhook);
`

// project makes an empty project that has installed the client, and runs a program in it.
func project(t *testing.T, client string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"user.ts":       user,
		"package.json":  `{"type": "module", "private": true}`,
		"tsconfig.json": `{"compilerOptions": {"strict": true, "module": "NodeNext", "target": "ES2022", "lib": ["ES2022", "DOM"], "types": []}, "files": ["user.ts"]}`,
	} {
		servers.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	run(t, dir, nil, "npm", "install", "--offline", "--no-audit", "--no-fund", client)
	run(t, dir, nil, absolute(t, filepath.Join(modules, ".bin/tsc")), "--project", "tsconfig.json")
	if out := run(t, dir, nil, "node", "user.js"); out != "function function\n" {
		t.Errorf("the program says %q", out)
	}
}

// folder is a copy of the client with its compiler, as npm ci leaves it, and without dist.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	run(t, ".", nil, "cp", "-R", "package.json", "package-lock.json", "tsconfig.json", "build.sh", "README.md", "src", dir)
	servers.NoError(t, os.MkdirAll(filepath.Join(dir, "node_modules/.bin"), 0o700))
	servers.NoError(t, os.Symlink(absolute(t, filepath.Join(modules, "typescript/bin/tsc")), filepath.Join(dir, "node_modules/.bin/tsc")))
	return dir
}

func TestThePackedClientIsInstalledAndUsed(t *testing.T) {
	t.Parallel()
	source := folder(t)
	packed := strings.TrimSpace(run(t, source, nil, "npm", "pack", "--silent", "--pack-destination", source)) // as make clients
	listed := run(t, source, nil, "tar", "tzf", packed)
	for _, file := range []string{"package.json", "README.md", "dist/index.js", "dist/index.d.ts", "dist/webhooks.js", "src/client.ts"} {
		if !strings.Contains(listed, "package/"+file+"\n") {
			t.Errorf("the package lacks %s", file)
		}
	}
	if strings.Contains(listed, "node_modules") || strings.Contains(listed, "build.sh") {
		t.Errorf("the package has more than is needed:\n%s", listed)
	}
	project(t, filepath.Join(source, packed))
}

func TestTheFolderOfTheClientIsBuiltWhenItIsInstalled(t *testing.T) {
	t.Parallel()
	project(t, folder(t))
}

func TestTheClientIsCompiledByTheCompilerOfItsTests(t *testing.T) {
	t.Parallel()
	version := func(file string) string {
		return strings.TrimSpace(run(t, ".", nil, "node", "-p", `JSON.parse(require("fs").readFileSync("`+file+`")).packages["node_modules/typescript"].integrity`))
	}
	if own, tests := version("package-lock.json"), version("../../tools/npm/package-lock.json"); own != tests {
		t.Errorf("%s and %s", own, tests)
	}
}
