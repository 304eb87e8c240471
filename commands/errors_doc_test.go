package commands

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Callers compare Field and Op with what their comments list: the lists have all that the package uses, and no more.
func TestErrorsListWhatTheyName(t *testing.T) {
	t.Parallel()
	fields, ops := map[string]bool{}, map[string]bool{}
	documented := map[string]string{}
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.TypeSpec:
				documentedFields(n, documented)
			case *ast.CallExpr:
				switch called(n.Fun) {
				case "c.text", "c.optionalText", "c.number", "c.instant", "c.duration", "c.refuse":
					take(fields, n.Args[0])
				case "newCallError":
					take(ops, n.Args[0])
				case "q.operate":
					take(ops, n.Args[3])
				}
			case *ast.KeyValueExpr:
				if called(n.Key) == "Field" {
					take(fields, n.Value)
				}
			}
			return true
		})
	}
	if diff := cmp.Diff(sorted(fields), listedFields(documented["InvalidRequestError.Field"])); diff != "" {
		t.Errorf("InvalidRequestError.Field (-used +documented):\n%s", diff)
	}
	if diff := cmp.Diff(sorted(ops), listedOps(documented["CallError.Op"])); diff != "" {
		t.Errorf("CallError.Op (-used +documented):\n%s", diff)
	}
}

// called is the name of a function or a field, with what it is selected from.
func called(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return called(e.X) + "." + e.Sel.Name
	}
	return ""
}

// take adds a literal; what a variable holds is a literal elsewhere.
func take(into map[string]bool, e ast.Expr) {
	if literal, ok := e.(*ast.BasicLit); ok && literal.Kind == token.STRING {
		if s, err := strconv.Unquote(literal.Value); err == nil {
			into[s] = true
		}
	}
}

func documentedFields(spec *ast.TypeSpec, into map[string]string) {
	structure, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, field := range structure.Fields.List {
		for _, name := range field.Names {
			into[spec.Name.Name+"."+name.Name] = field.Doc.Text()
		}
	}
}

// listedFields are what stands between a colon and the end of its sentence.
func listedFields(comment string) []string {
	listed := map[string]bool{}
	for _, list := range regexp.MustCompile(`:[^.]*`).FindAllString(comment, -1) {
		for _, name := range regexp.MustCompile(`[a-z_]+`).FindAllString(list, -1) {
			listed[name] = true
		}
	}
	return sorted(listed)
}

// listedOps are what stands in quotation marks.
func listedOps(comment string) []string {
	listed := map[string]bool{}
	for _, match := range regexp.MustCompile(`"([a-z\s]+)"`).FindAllStringSubmatch(comment, -1) {
		listed[match[1]] = true
	}
	return sorted(listed)
}

func sorted(names map[string]bool) []string { return slices.Sorted(maps.Keys(names)) }
