// Package mutant plants bugs in Go code, to show that tests find them. It changes the syntax tree
// that the compiler sees, with operators that ignore the meaning of the code: a condition is
// negated, an operand of && or || is dropped, a bound is moved by one, an assignment or a call is
// dropped, min and max or + and − are exchanged.
//
// All bugs are in one test binary, each behind a switch, so that it is built once. The environment
// variable HEDGE_MUTANT selects the active bug by number.
package mutant

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Bug is one that was planted. The first has number 1.
type Bug struct {
	Number int
	Where  string // file:line
	What   string
}

func (b Bug) String() string { return fmt.Sprintf("%s: %s", b.Where, b.What) }

// Build plants bugs in files of the package in the current folder and returns its test binary.
func Build(t testing.TB, files ...string) (binary string, bugs []Bug) {
	t.Helper()
	dir, overlay, name := t.TempDir(), map[string]string{}, ""
	write := func(file, source string) {
		original, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		overlay[original] = filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(overlay[original], []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var planted string
		if planted, name, err = plant(file, string(source), &bugs); err != nil {
			t.Fatal(err)
		}
		write(file, planted)
	}
	write("mutant_switch.go", "package "+name+"\n"+switches)
	replace, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, replace, 0o600); err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(dir, "mutants.test")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay="+list, "-o",
		binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary, bugs
}

// Run runs a test binary with one bug on, at the usual sizes: tests that plant bugs skip
// themselves.
func (b Bug) Run(t testing.TB, binary string, args ...string) (out string, err error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), binary, args...)
	c.Env = append(os.Environ(), "HEDGE_TESTS=", fmt.Sprintf("HEDGE_MUTANT=%d", b.Number))
	text, err := c.CombinedOutput()
	return string(text), err
}

// switches are what planted code calls.
const switches = `
import (
	"cmp"
	"os"
	"strconv"
)

var theMutant, _ = strconv.Atoi(os.Getenv("HEDGE_MUTANT"))

func mutant(n int) bool { return n == theMutant }

func mutantMin[T cmp.Ordered](n int, a, b T) T {
	if mutant(n) {
		return max(a, b)
	}
	return min(a, b)
}

func mutantMax[T cmp.Ordered](n int, a, b T) T {
	if mutant(n) {
		return min(a, b)
	}
	return max(a, b)
}

type mutantNumber interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

func mutantAdd[T mutantNumber](n int, a, b T) T {
	if mutant(n) {
		return a - b
	}
	return a + b
}

func mutantSub[T mutantNumber](n int, a, b T) T {
	if mutant(n) {
		return a + b
	}
	return a - b
}
`

// planter writes the switches into one source. It keeps all lines where they are.
type planter struct {
	source        string
	set           *token.FileSet
	bugs          *[]Bug
	before, after map[int]string // insertions by offset
	cut           map[int]int    // parts that are left out
	clauses       map[ast.Stmt]bool
	types         map[ast.Expr]types.TypeAndValue
}

// plant returns the source with the bugs, and the name of its package.
func plant(name, source string, bugs *[]Bug) (planted, pkg string, err error) {
	p := &planter{source: source, set: token.NewFileSet(), bugs: bugs, before: map[int]string{},
		after: map[int]string{}, cut: map[int]int{}, clauses: map[ast.Stmt]bool{},
		types: map[ast.Expr]types.TypeAndValue{}}
	file, err := p.parse(name)
	if err != nil {
		return "", "", err
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			ast.Inspect(f.Body, p.visit)
		}
	}
	var out strings.Builder
	for at := 0; at <= len(source); {
		out.WriteString(p.after[at] + p.before[at])
		if to, ok := p.cut[at]; ok {
			at = to
			continue
		}
		if at < len(source) {
			out.WriteByte(source[at])
		}
		at++
	}
	return out.String(), file.Name.Name, nil
}

// parse parses the file and, to know constants, all others of its folder and what they import.
func (p *planter) parse(name string) (file *ast.File, err error) {
	paths, err := filepath.Glob(filepath.Join(filepath.Dir(name), "*.go"))
	var all []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(p.set, path, nil, 0)
		if err != nil {
			return nil, err
		}
		if all = append(all, f); filepath.Base(path) == filepath.Base(name) {
			file = f
		}
	}
	info := &types.Info{Types: p.types}
	config := types.Config{Importer: importer.ForCompiler(p.set, "source", nil), Error: func(error) {}}
	_, _ = config.Check("", p.set, all, info)
	return file, err
}

func (p *planter) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl: // constants
		return false
	case *ast.IfStmt:
		p.clauses[n.Init] = true
		p.negate(n.Cond)
	case *ast.SwitchStmt:
		p.clauses[n.Init] = true
	case *ast.CommClause:
		p.clauses[n.Comm] = true
	case *ast.ForStmt:
		p.clauses[n.Init], p.clauses[n.Post] = true, true
	case *ast.CaseClause:
		for _, c := range n.List {
			if isCondition(c) {
				p.negate(c)
			}
		}
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			p.leaveOut(n)
		}
	case *ast.IncDecStmt:
		p.leaveOut(n)
	case *ast.ExprStmt:
		p.leaveOut(n)
	case *ast.BinaryExpr:
		p.binary(n)
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "min" || f.Name == "max") && len(n.Args) == 2 {
			swap := map[string]string{"min": "mutantMin", "max": "mutantMax"}[f.Name]
			p.replace(n.Pos(), n.Lparen+1, fmt.Sprintf("%s(%d, ", swap, p.bug(n, "exchanges min and max:")))
		}
	}
	return true
}

// isCondition tells a case of a switch without a tag from others, as far as that matters: a bare
// name is no bug.
func isCondition(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return true
	case *ast.UnaryExpr:
		return e.Op == token.NOT
	}
	return false
}

func (p *planter) negate(e ast.Expr) {
	p.around(e, fmt.Sprintf("mutant(%d) != (", p.bug(e, "negates")), ")")
}

func (p *planter) leaveOut(n ast.Stmt) {
	if p.clauses[n] { // of an if, a switch or a for
		return
	}
	p.around(n, fmt.Sprintf("if !mutant(%d) { ", p.bug(n, "leaves out")), " }")
}

func (p *planter) binary(n *ast.BinaryExpr) {
	switch n.Op {
	case token.LAND, token.LOR:
		not, or := "", "||"
		if n.Op == token.LOR {
			not, or = "!", "&&"
		}
		for _, side := range []ast.Expr{n.X, n.Y} {
			p.around(side, fmt.Sprintf("(%smutant(%d) %s ", not, p.bug(side, "leaves out of a condition"), or), ")")
		}
	case token.LSS, token.GTR: // a < b becomes a < b || bug && a == b
		x, y := p.text(n.X), p.text(n.Y)
		p.around(n, "(", fmt.Sprintf(" || mutant(%d) && %s == %s)", p.bug(n, "moves the bound of"), x, y))
	case token.LEQ, token.GEQ:
		x, y := p.text(n.X), p.text(n.Y)
		p.around(n, "(", fmt.Sprintf(" && !(mutant(%d) && %s == %s))", p.bug(n, "moves the bound of"), x, y))
	case token.ADD, token.SUB:
		if v := p.types[n]; v.Value != nil || p.isText(n) { // a constant
			return
		}
		swap := map[token.Token]string{token.ADD: "mutantAdd", token.SUB: "mutantSub"}[n.Op]
		p.around(n, fmt.Sprintf("%s(%d, ", swap, p.bug(n, "exchanges + and −:")), ")")
		p.replace(n.OpPos, n.OpPos+1, ",")
	}
}

// isText finds a string by the literals in a sum, and by its type where that is known.
func (p *planter) isText(e ast.Expr) bool {
	if t, ok := p.types[e]; ok && t.Type != nil {
		if b, ok := t.Type.Underlying().(*types.Basic); ok && b.Info()&types.IsString != 0 {
			return true
		}
	}
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return p.isText(e.X) || p.isText(e.Y)
	}
	return false
}

// bug notes a new one.
func (p *planter) bug(n ast.Node, what string) int {
	at, number := p.set.Position(n.Pos()), len(*p.bugs)+1
	*p.bugs = append(*p.bugs, Bug{number, fmt.Sprintf("%s:%d", filepath.Base(at.Filename), at.Line),
		what + " " + strings.Join(strings.Fields(p.text(n)), " ")})
	return number
}

func (p *planter) offset(at token.Pos) int { return p.set.Position(at).Offset }

func (p *planter) text(n ast.Node) string { return p.source[p.offset(n.Pos()):p.offset(n.End())] }

// around puts text around a node: nodes are visited from the outside to the inside.
func (p *planter) around(n ast.Node, before, after string) {
	p.before[p.offset(n.Pos())] += before
	p.after[p.offset(n.End())] = after + p.after[p.offset(n.End())]
}

func (p *planter) replace(from, to token.Pos, text string) {
	p.before[p.offset(from)] += text
	p.cut[p.offset(from)] = p.offset(to)
}
