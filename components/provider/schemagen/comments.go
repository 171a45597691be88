package schemagen

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// Comments are the comments on the types of some packages, as their sources have them.
type Comments struct {
	types    map[string]*typeComments // by "path.Type"
	literals map[string]string        // the values of constant texts, by name
}

type typeComments struct {
	text   string
	fields map[string]string
	values []enumValue
}

// ReadComments reads the sources of Go packages: folders by import path.
func ReadComments(folders map[string]string) (*Comments, error) {
	c := &Comments{types: map[string]*typeComments{}, literals: map[string]string{}}
	for path, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			return nil, fmt.Errorf("list the sources in %s: %w", folder, err)
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("no Go sources in %s", folder)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
			if err != nil {
				return nil, fmt.Errorf("parse %s: %w", file, err)
			}
			for _, declaration := range source.Decls {
				if general, ok := declaration.(*ast.GenDecl); ok {
					c.addDeclaration(path, general)
				}
			}
		}
	}
	return c, nil
}

func (c *Comments) addDeclaration(path string, declaration *ast.GenDecl) {
	for _, spec := range declaration.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			text := s.Doc.Text()
			if text == "" {
				text = declaration.Doc.Text()
			}
			t := c.at(path, s.Name.Name)
			t.text = text
			if object, ok := s.Type.(*ast.StructType); ok {
				t.addFields(object)
			}
		case *ast.ValueSpec:
			c.addConstant(path, s)
		}
	}
}

func (t *typeComments) addFields(object *ast.StructType) {
	for _, field := range object.Fields.List {
		for _, name := range field.Names {
			t.fields[name.Name] = field.Doc.Text()
		}
	}
}

// addConstant notes a constant text. One of a type of the package is a value of that type's enumeration.
func (c *Comments) addConstant(path string, spec *ast.ValueSpec) {
	if len(spec.Names) != 1 || len(spec.Values) != 1 {
		return
	}
	literal, ok := spec.Values[0].(*ast.BasicLit)
	if !ok {
		return
	}
	value := literal.Value
	if literal.Kind == token.STRING {
		unquoted, err := strconv.Unquote(literal.Value)
		if err != nil {
			return // the parser would not have taken it
		}
		value = unquoted
	}
	name := spec.Names[0].Name
	c.literals[name] = value
	if of, ok := spec.Type.(*ast.Ident); ok && ast.IsExported(name) {
		t := c.at(path, of.Name)
		t.values = append(t.values, enumValue{Name: name, Description: c.clean(spec.Doc.Text()), Value: value})
	}
}

func (c *Comments) at(path, name string) *typeComments {
	key := path + "." + name
	if c.types[key] == nil {
		c.types[key] = &typeComments{fields: map[string]string{}}
	}
	return c.types[key]
}

// swagger is what the types of Kubernetes' own API know of themselves.
type swagger interface{ SwaggerDoc() map[string]string }

// ofType is the comment on a type, empty when there is none.
func (c *Comments) ofType(t reflect.Type) string {
	if known := c.types[t.PkgPath()+"."+t.Name()]; known != nil {
		return c.clean(known.text)
	}
	if api, ok := reflect.Zero(t).Interface().(swagger); ok {
		return c.clean(api.SwaggerDoc()[""])
	}
	return ""
}

// ofField is the comment on a field of a type, empty when there is none.
func (c *Comments) ofField(t reflect.Type, field reflect.StructField) string {
	if known := c.types[t.PkgPath()+"."+t.Name()]; known != nil {
		return c.clean(known.fields[field.Name])
	}
	if api, ok := reflect.Zero(t).Interface().(swagger); ok {
		return c.clean(api.SwaggerDoc()[propertyName(field)])
	}
	return ""
}

// ofValues are the constants of a type.
func (c *Comments) ofValues(t reflect.Type) []enumValue {
	if known := c.types[t.PkgPath()+"."+t.Name()]; known != nil {
		return known.values
	}
	return nil
}

var docLink = regexp.MustCompile(`\[([A-Za-z][A-Za-z0-9_.]*)\]`)

// clean leaves out markers and what follows "---", and writes out links: a constant as its value.
func (c *Comments) clean(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "---" {
			break
		}
		if !strings.HasPrefix(line, "+") {
			lines = append(lines, line)
		}
	}
	text = strings.TrimSpace(strings.Join(lines, "\n"))
	return docLink.ReplaceAllStringFunc(text, func(link string) string {
		name := link[1 : len(link)-1]
		if value, ok := c.literals[name[strings.LastIndex(name, ".")+1:]]; ok {
			return value
		}
		return name
	})
}
