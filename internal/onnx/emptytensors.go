package onnx

// endsOnEmpty are the operators that end the process in ONNX Runtime 1.31, by
// std::terminate or a division by zero, where a tensor has an extent of 0: GRU where the
// batch or the time is 0, Einsum where an axis is over which products are summed, the others
// where the batch is.
var endsOnEmpty = [...]string{"GRU", "LSTM", "Einsum", "DynamicQuantizeLSTM", "QAttention"}

// EndsOnEmpty returns an operator of the model that ends the process when it runs with an
// empty tensor, or "" if there is none. Such a model must not run with an input that has an
// extent of 0, neither for a request nor to try something at load. If the operators are
// Unread, it returns one that the model may have.
func (s *Signature) EndsOnEmpty() string {
	for _, name := range endsOnEmpty {
		if s.MayHave(name) {
			return name
		}
	}
	return ""
}
