// Package doctor looks for what commonly goes wrong when stateful models are served: settings of
// models, of servers and of deployments that cost people sequences, answers or nights.
//
// A [Subject] is what can be seen: the models and the version of a running server ([Ask]), the
// process of one on this machine ([LookAtProcess]), and the files of a model repository, of a
// deployment or of an installed backend ([Read]). [Examine] applies every [Rule] to it.
//
// Rules are in rules_*.go, one function each, by what they look at. A rule says that something
// is wrong only if it has seen it: [Finding].Evidence quotes it. What it needed and was not
// given is in [Report].Unseen.
package doctor
