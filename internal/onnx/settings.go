package onnx

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Setting is a setting of ONNX Runtime by ONNX Runtime's own name, such as
// session.disable_prepacking = 1.
type Setting struct{ Key, Value string }

// Kind is which values a setting takes.
type Kind uint8

// The kinds.
const (
	Text     Kind = iota
	Bool          // 0 or 1; false and true are translated
	Integer       // a whole number
	Unsigned      // a whole number that is 0 or more
	Number        // with a decimal point, or without
)

// Check returns the value as ONNX Runtime reads it, or an error that says what is wanted.
// ONNX Runtime itself takes any text, and falls back to the default for one that it does
// not know, or for some settings ends the process. Whole numbers are returned as it reads
// them: without a plus sign, zeros in front or a minus sign before 0.
func (k Kind) Check(value string) (string, error) {
	switch k {
	case Bool:
		switch strings.ToLower(value) {
		case "0", "false":
			return "0", nil
		case "1", "true":
			return "1", nil
		}
		return "", errors.New("want one of 0, 1, false, true")
	case Integer:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return "", errors.New("want a whole number")
		}
		return strconv.FormatInt(n, 10), nil
	case Unsigned:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 {
			return "", errors.New("want a whole number that is 0 or more")
		}
		return strconv.FormatInt(n, 10), nil
	case Number:
		if _, err := strconv.ParseFloat(value, 64); err != nil {
			return "", errors.New("want a number")
		}
	}
	return value, nil
}

// Override returns the settings with those of the same keys replaced and the others
// appended. It changes neither slice.
func Override(settings, by []Setting) []Setting {
	settings = slices.Clone(settings)
	for _, s := range by {
		at := slices.IndexFunc(settings, func(old Setting) bool { return old.Key == s.Key })
		if at >= 0 {
			settings[at].Value = s.Value
		} else {
			settings = append(settings, s)
		}
	}
	return settings
}

// SessionKeys are the configuration entries of a session (AddSessionConfigEntry) that ONNX
// Runtime 1.31 reads, but those that a model in a file has no use for and
// session.set_denormal_as_zero, which changes threads of the process. ONNX Runtime does not
// refuse others, so a test compares this table with the library.
var SessionKeys = map[string]Kind{
	"ep.context_embed_mode":                            Bool,
	"ep.context_enable":                                Bool,
	"ep.context_file_path":                             Text,
	"ep.context_model_external_initializers_file_name": Text,
	"ep.context_source_model_path":                     Text,
	"ep.cuda.fpa_intb_gemm":                            Text,
	"ep.cuda.fpa_intb_profile_m":                       Text,
	"ep.cuda.gqa_workspace_max_total_sequence_length":  Integer,
	"ep.enable_weightless":                             Bool,

	"mlas.disable_kleidiai":                             Bool,
	"mlas.enable_gemm_fastmath_arm64_bfloat16":          Bool,
	"mlas.kleidiai.conv_igemm_max_work":                 Unsigned,
	"mlas.nchwc_depthwise_sliding":                      Text,
	"mlas.nchwc_pointwise_conv_max_input_channel_batch": Unsigned,
	"mlas.qnbit.force_fp32":                             Bool,
	"mlas.use_lut_gemm":                                 Bool,

	"optimization.constant_folding_max_output_size_in_bytes": Integer,
	"optimization.disable_specified_optimizers":              Text,
	"optimization.enable_cast_chain_elimination":             Bool,
	"optimization.enable_gelu_approximation":                 Bool,
	"optimization.minimal_build_optimizations":               Text,

	"session.allow_released_opsets_only":                              Bool,
	"session.collect_node_memory_stats_to_file":                       Text,
	"session.debug_layout_transformation":                             Bool,
	"session.disable_aot_function_inlining":                           Bool,
	"session.disable_cpu_ep_fallback":                                 Bool,
	"session.disable_double_qdq_remover":                              Bool,
	"session.disable_model_compile":                                   Bool,
	"session.disable_prepacking":                                      Bool,
	"session.disable_qdq_constant_folding":                            Bool,
	"session.disable_quant_qdq":                                       Bool,
	"session.dynamic_block_base":                                      Integer,
	"session.enable_dq_matmulnbits_fusion":                            Bool,
	"session.enable_moe_expert_counting":                              Bool,
	"session.enable_moe_expert_statistics":                            Bool,
	"session.enable_quant_qdq_cleanup":                                Bool,
	"session.enable_saved_runtime_optimizations":                      Text,
	"session.fail_on_suboptimal_compiled_model":                       Bool,
	"session.force_spinning_stop":                                     Bool,
	"session.function_expansion_byte_limit":                           Integer,
	"session.function_expansion_node_limit":                           Integer,
	"session.gqa_value_layout":                                        Text,
	"session.graph_optimizations_loop_level":                          Integer,
	"session.inter_op.allow_spinning":                                 Bool,
	"session.inter_op.spin_backoff_max":                               Integer,
	"session.inter_op.spin_duration_us":                               Integer,
	"session.intra_op.allow_spinning":                                 Bool,
	"session.intra_op.spin_backoff_max":                               Integer,
	"session.intra_op.spin_duration_us":                               Integer,
	"session.intra_op_thread_affinities":                              Text,
	"session.layer_assignment_settings":                               Text,
	"session.load_model_format":                                       Text,
	"session.max_shape_override":                                      Text,
	"session.moe_expert_counter_alpha":                                Number,
	"session.moe_expert_counter_beta":                                 Number,
	"session.moe_expert_counter_state_file":                           Text,
	"session.name_based_layer_assignment":                             Text,
	"session.node_partition_config_file":                              Text,
	"session.optimized_model_external_initializers_file_name":         Text,
	"session.optimized_model_external_initializers_min_size_in_bytes": Integer,
	"session.prepack.enable_parallel":                                 Bool,
	"session.qdq_matmulnbits_accuracy_level":                          Integer,
	"session.qdq_matmulnbits_block_size":                              Integer,
	"session.qdqisint8allowed":                                        Bool,
	"session.record_ep_graph_assignment_info":                         Bool,
	"session.resource_cuda_partitioning_settings":                     Text,
	"session.save_external_prepacked_constant_initializers":           Bool,
	"session.save_model_format":                                       Text,
	"session.strict_shape_type_inference":                             Bool,
	"session.strict_workspace_verification":                           Bool,
	"session.use_device_allocator_for_initializers":                   Bool,
	"session.use_env_allocators":                                      Bool,
	"session.use_external_initializer_file_buffers_directly":          Bool,
	"session.use_memory_mapped_ort_model":                             Bool,
	"session.use_ort_model_bytes_for_initializers":                    Bool,
	"session.x64quantprecision":                                       Text,
}

// RunKeys are the configuration entries of a run (AddRunConfigEntry) that a user may set.
// The backend sets those that order the work of a GPU itself.
var RunKeys = map[string]Kind{
	ArenaShrinkage: Text,
}

// ArenaShrinkage names the arenas that give free memory back after each run.
const ArenaShrinkage = "memory.enable_memory_arena_shrinkage"

// CUDAKeys are the options of the CUDA execution provider that a user may set.
var CUDAKeys = map[string]Kind{
	"arena_extend_strategy":              Text,
	"cudnn_conv1d_pad_to_nc1d":           Bool,
	"cudnn_conv_algo_search":             Text,
	"cudnn_conv_use_max_workspace":       Bool,
	"do_copy_in_default_stream":          Bool,
	"enable_cuda_graph":                  Bool,
	"enable_cudnn":                       Bool,
	"enable_skip_layer_norm_strict_mode": Bool,
	"fuse_conv_bias":                     Bool,
	"gpu_mem_limit":                      Text,
	"prefer_nhwc":                        Bool,
	"sdpa_kernel":                        Integer,
	"tunable_op_enable":                  Bool,
	"tunable_op_max_tuning_duration_ms":  Integer,
	"tunable_op_tuning_enable":           Bool,
	"use_ep_level_unified_stream":        Bool,
	"use_tf32":                           Bool,
}

// TensorRTKeys are the options of the TensorRT execution provider that a user may set.
var TensorRTKeys = map[string]Kind{
	"trt_auxiliary_streams":                 Integer,
	"trt_bf16_enable":                       Bool,
	"trt_build_heuristics_enable":           Bool,
	"trt_builder_optimization_level":        Integer,
	"trt_context_memory_sharing_enable":     Bool,
	"trt_cuda_graph_enable":                 Bool,
	"trt_detailed_build_log":                Bool,
	"trt_dla_core":                          Integer,
	"trt_dla_enable":                        Bool,
	"trt_dump_ep_context_model":             Bool,
	"trt_dump_subgraphs":                    Bool,
	"trt_engine_cache_enable":               Bool,
	"trt_engine_cache_path":                 Text,
	"trt_engine_cache_prefix":               Text,
	"trt_engine_decryption_enable":          Bool,
	"trt_engine_decryption_lib_path":        Text,
	"trt_engine_hw_compatible":              Bool,
	"trt_ep_context_embed_mode":             Integer,
	"trt_ep_context_file_path":              Text,
	"trt_extra_plugin_lib_paths":            Text,
	"trt_force_sequential_engine_build":     Bool,
	"trt_force_timing_cache":                Bool,
	"trt_fp16_enable":                       Bool,
	"trt_int8_calibration_table_name":       Text,
	"trt_int8_enable":                       Bool,
	"trt_int8_use_native_calibration_table": Bool,
	"trt_layer_norm_fp32_fallback":          Bool,
	"trt_load_user_initializer":             Bool,
	"trt_max_partition_iterations":          Integer,
	"trt_max_workspace_size":                Integer,
	"trt_min_subgraph_size":                 Integer,
	"trt_onnx_model_folder_path":            Text,
	"trt_op_types_to_exclude":               Text,
	"trt_preview_features":                  Text,
	"trt_profile_max_shapes":                Text,
	"trt_profile_min_shapes":                Text,
	"trt_profile_opt_shapes":                Text,
	"trt_sparsity_enable":                   Bool,
	"trt_tactic_sources":                    Text,
	"trt_timing_cache_enable":               Bool,
	"trt_timing_cache_path":                 Text,
	"trt_weight_stripped_engine_enable":     Bool,
}

// Settings are the pairs of a map, ordered by their keys.
func Settings(pairs map[string]string) []Setting {
	var all []Setting
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		all = append(all, Setting{key, pairs[key]})
	}
	return all
}
