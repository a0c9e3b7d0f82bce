package console

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template/parse"

	ours "triprize/web/console"
	public "triprize/web/pages"
)

// texts are the members that have words of customers, apps and operators.
var texts = strings.Fields("Name Label UserID OwnerID Reason CancelReason CancelledBy Description Reference Message Detail Failure By Actor Operator Error Value Target $value $fault")

// A name can have letters that turn what follows (U+202E), or be written from right to left: each stands in an element with
// a direction of its own.
func TestEveryTextOfOthersHasADirectionOfItsOwn(t *testing.T) {
	t.Parallel()
	isolated, seen := regexp.MustCompile(`(<bdi>|<[a-z0-9]+ [^<>]*dir="auto"[^<>]*>)$`), 0
	for _, files := range []fs.FS{ours.Files, public.Files} {
		names, _ := fs.Glob(files, "*.html")
		for _, name := range names {
			source, err := fs.ReadFile(files, name)
			if err != nil {
				t.Fatal(err)
			}
			tree := parse.New(name)
			tree.Mode = parse.SkipFuncCheck
			trees := make(map[string]*parse.Tree)
			if _, err := tree.Parse(string(source), "", "", trees); err != nil {
				t.Fatal(err)
			}
			for _, one := range trees {
				html := ""
				walk(one.Root, "", func(node parse.Node, dot string) {
					if text, ok := node.(*parse.TextNode); ok {
						html += string(text.Text)
						return
					}
					action := node.(*parse.ActionNode)
					isInTag := strings.LastIndexByte(html, '<') > strings.LastIndexByte(html, '>')
					if isText := slices.Contains(texts, nameOf(action.Pipe, dot)); isText && !isInTag {
						if seen++; !isolated.MatchString(html) {
							t.Errorf("%s: %s stands as it is after %q", name, action, html[max(0, len(html)-60):])
						}
					}
					if len(action.Pipe.Decl) == 0 {
						html += "x"
					}
				})
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d texts were seen", seen)
	}
}

// walk visits the texts and the actions of a template. dot is the name of what the dot is; empty: it has none.
func walk(list *parse.ListNode, dot string, visit func(node parse.Node, dot string)) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		switch node := node.(type) {
		case *parse.TextNode, *parse.ActionNode:
			visit(node, dot)
		case *parse.IfNode:
			walk(node.List, dot, visit)
			walk(node.ElseList, dot, visit)
		case *parse.WithNode:
			walk(node.List, nameOf(node.Pipe, dot), visit)
			walk(node.ElseList, dot, visit)
		case *parse.RangeNode:
			walk(node.List, "", visit)
			walk(node.ElseList, dot, visit)
		}
	}
}

// nameOf is the last member that a pipeline names.
func nameOf(pipe *parse.PipeNode, dot string) string {
	if len(pipe.Cmds) != 1 || len(pipe.Cmds[0].Args) != 1 {
		return ""
	}
	switch arg := pipe.Cmds[0].Args[0].(type) {
	case *parse.DotNode:
		return dot
	case *parse.FieldNode:
		return arg.Ident[len(arg.Ident)-1]
	case *parse.VariableNode:
		return arg.Ident[len(arg.Ident)-1]
	}
	return ""
}
