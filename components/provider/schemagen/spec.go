package schemagen

// packageSpec and the types below are the parts of Pulumi's package schema that are used here. The module that has them
// all also brings the parsers of every language that Pulumi can generate.
type packageSpec struct {
	Name        string                  `json:"name"`
	DisplayName string                  `json:"displayName"`
	Version     string                  `json:"version"`
	Description string                  `json:"description"`
	Keywords    []string                `json:"keywords"`
	License     string                  `json:"license"`
	Repository  string                  `json:"repository"`
	Language    map[string]any          `json:"language"`
	Config      struct{}                `json:"config"`
	Provider    objectSpec              `json:"provider"`
	Types       map[string]*objectSpec  `json:"types"`
	Resources   map[string]resourceSpec `json:"resources"`
}

type resourceSpec struct {
	objectSpec
	IsComponent     bool                    `json:"isComponent"`
	InputProperties map[string]propertySpec `json:"inputProperties"`
	RequiredInputs  []string                `json:"requiredInputs,omitempty"`
}

// objectSpec is an object, or an enumeration.
type objectSpec struct {
	Description string                  `json:"description,omitempty"`
	Type        string                  `json:"type,omitempty"`
	Properties  map[string]propertySpec `json:"properties,omitempty"`
	Required    []string                `json:"required,omitempty"`
	Enum        []enumValue             `json:"enum,omitempty"`
}

type enumValue struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Value       string `json:"value"`
}

type propertySpec struct {
	typeSpec
	Description string `json:"description,omitempty"`
	Secret      bool   `json:"secret,omitempty"`
}

type typeSpec struct {
	Type                 string     `json:"type,omitempty"`
	Ref                  string     `json:"$ref,omitempty"`
	AdditionalProperties *typeSpec  `json:"additionalProperties,omitempty"`
	Items                *typeSpec  `json:"items,omitempty"`
	OneOf                []typeSpec `json:"oneOf,omitempty"`
}
